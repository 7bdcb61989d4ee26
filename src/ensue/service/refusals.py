"""Why a service does not do what it was asked for."""

from ensue.errors import ServiceError


class NotFoundError(ServiceError):
    """What is asked for does not exist, or belongs to somebody else."""


class NotAllowedError(ServiceError):
    """The token does not reach so far."""


class UnauthenticatedError(ServiceError):
    """No token, or one that is unknown, over or taken back."""


class ConflictError(ServiceError):
    """It contradicts what is there already."""


class OverLimitError(ServiceError):
    """More than may be; `limit` is its name in the configuration."""

    def __init__(self, limit: str, said: str) -> None:
        super().__init__(said)
        self.limit = limit


class IntakeStoppedError(ServiceError):
    """No events are taken at the moment, because they could not be kept."""


class NoRoomError(IntakeStoppedError):
    """Nothing can be written because the disk is full; what is kept can be read."""
