"""Errors of a service."""

from ensue.errors import ServiceError


class NotFoundError(ServiceError):
    """The object does not exist, or belongs to another user."""


class NotAllowedError(ServiceError):
    """The token lacks a scope."""


class UnauthenticatedError(ServiceError):
    """The token is missing, unknown, expired or revoked."""


class ConflictError(ServiceError):
    """The request conflicts with the current state."""


class OverLimitError(ServiceError):
    """The request exceeds `limit`, a name in the configuration."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


class IntakeStoppedError(ServiceError):
    """No events are accepted because they could not be stored."""


class NoRoomError(IntakeStoppedError):
    """The disk is full: reading works, writing does not."""
