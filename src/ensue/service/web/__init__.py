"""The service over HTTP: a FastAPI application, and the server that runs it."""
