"""The HTTP API of a service: a FastAPI application and its server."""
