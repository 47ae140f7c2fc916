"""Bodies of requests, which are checked, and of responses, as the API describes them.

Ids are integers or strings, as in the dataset of the run.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    StrictBool,
    StrictInt,
    StringConstraints,
    model_validator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import custom_error_schema

_MAX_ID = 1024
"""Characters of an id: reasons repeat ids that are unknown."""

_MAX_KEPT_BYTES = 1024
"""Of an id of an event: a row of PostgreSQL's indexes, of two of them, takes at most 2,704."""

MAX_K = 1000
"""Largest k: of the length of an answer, the size of a body says nothing."""

MAX_USERS = 256
"""Users of a request, or items to find similar ones of."""

_INT64 = 2**63


def _as_one(union: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    """One problem of an id, not one for each of its types."""
    message = f"an id is an integer of 64 bits or text of at most {_MAX_ID:,} characters"
    return custom_error_schema(handler(union), "id", custom_error_message=message)


AnyId = Annotated[
    Annotated[StrictInt, Field(ge=-_INT64, lt=_INT64)]
    | Annotated[str, StringConstraints(strict=True, max_length=_MAX_ID)],
    GetPydanticSchema(_as_one),
]


def _kept(value: int | str) -> int | str:
    if not 0 < len(str(value).encode()) <= _MAX_KEPT_BYTES or "\0" in str(value):
        raise ValueError(f"an id of an event has 1 to {_MAX_KEPT_BYTES:,} bytes, none of them 0")
    return value


_KeptId = Annotated[AnyId, AfterValidator(_kept)]
_K = Annotated[StrictInt, Field(ge=1, le=MAX_K)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class User(_Body):
    """A user to recommend to: known by an id, new with a history, or both."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["history"]},
                {"required": ["user_id"], "properties": {"user_id": {"not": {"type": "null"}}}},
            ]
        }
    )

    user_id: Annotated[AnyId | None, Field(description="Id of the user, if there is one.")] = None
    history: Annotated[
        list[AnyId],
        Field(description="Items the user has, beside those that the run has of the id."),
    ] = []

    @property
    def kept_id(self) -> str | None:
        """The id as events have it; None where they cannot have it."""
        # PostgreSQL takes no text with a NUL, not even to compare with.
        return None if self.user_id is None or "\0" in str(self.user_id) else str(self.user_id)

    @model_validator(mode="after")
    def _is_someone(self) -> User:
        if self.user_id is None and "history" not in self.model_fields_set:
            raise ValueError("a user needs a user_id, a history or both")
        return self


class RecommendBody(_Body):
    """Users to recommend to, and the options of their lists."""

    model: Annotated[str | None, Field(description="Name of a run; the first unless given.")] = None
    users: Annotated[list[User], Field(min_length=1, max_length=MAX_USERS)]
    k: Annotated[_K, Field(description="Items per list.")] = 10
    exclude: Annotated[list[AnyId], Field(description="Items to leave out.")] = []
    candidates: Annotated[
        list[AnyId] | None,
        Field(description="Items that may be recommended, such as what is in stock."),
    ] = None
    include_seen: Annotated[
        StrictBool, Field(description="Recommend also what the user has already.")
    ] = False
    rules: Annotated[
        list[str], Field(description="Names of rules that items must meet, all of them.")
    ] = []
    max_per: Annotated[
        dict[str, Annotated[StrictInt, Field(ge=1)]],
        Field(description="Most items of a list that are alike in a column of the items."),
    ] = {}
    reasons: Annotated[
        StrictBool,
        Field(description="Name the items of the history that are nearest to each item listed."),
    ] = False


class SimilarBody(_Body):
    """Items to find similar ones of."""

    model: str | None = None
    item_ids: Annotated[list[AnyId], Field(min_length=1, max_length=MAX_USERS)]
    k: _K = 10


class SearchQuery(_Body):
    """A search among the items of the catalogue, or among users."""

    model: str | None = None
    query: Annotated[str, Field(max_length=200)] = ""
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 10


class HistoryQuery(_Body):
    """A user whose history is asked for."""

    model: str | None = None
    user_id: Annotated[str, Field(max_length=_MAX_ID, pattern=r"^[^\x00]*$", examples=["7"])]
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 500


class RunQuery(_Body):
    """A run whose training is asked for."""

    model: str | None = None


class EventBody(_Body):
    """An interaction that happened."""

    event_id: Annotated[_KeptId, Field(description="Id of the event; one is kept once.")]
    user_id: _KeptId
    item_id: _KeptId
    event_type: Annotated[
        Annotated[str, AfterValidator(_kept)] | None,
        Field(description="Such as purchase or view, for a later training; lists heed all alike."),
    ] = None
    time: Annotated[
        float | None,
        Field(
            strict=True,
            allow_inf_nan=False,
            description="Time as in the data of the run; seconds since 1970, now, unless given.",
        ),
    ] = None


class EventsBody(_Body):
    """Interactions to keep."""

    events: Annotated[list[EventBody], Field(min_length=1)]


class WithdrawBody(_Body):
    """Events to forget."""

    event_ids: Annotated[list[_KeptId], Field(min_length=1)]


class ReloadBody(_Body):
    """Nothing: there is nothing to choose."""


class EventsResponse(BaseModel):
    """All events are on the disk."""

    new: Annotated[int, Field(description="Events whose id was not known before.")]
    repeated: Annotated[int, Field(description="Events that were kept before, and are as then.")]
    unknown_items: Annotated[
        int, Field(description="Events of items the first run does not know, for a later training.")
    ]


class WithdrawResponse(BaseModel):
    """No event is kept, but for its id."""

    withdrawn: Annotated[int, Field(description="Events that were kept until now.")]
    not_kept: Annotated[
        int, Field(description="Ids of none that was; such an event is not kept when it comes.")
    ]


class ScoredItem(BaseModel):
    """One item of a list."""

    item_id: int | str
    score: Annotated[float, Field(description="Only its order within one list means anything.")]
    title: Annotated[str | None, Field(description="Where the run has titles.")] = None


class RecommendedItem(ScoredItem):
    """One item of a user's list."""

    because: Annotated[
        list[ScoredItem] | None,
        Field(description="The nearest items of the history, where reasons are asked for."),
    ] = None


class UserAnswer(BaseModel):
    """The list of one user."""

    user_id: int | str | None
    known: Annotated[bool, Field(description="True where the run knows the user's id.")]
    items: list[RecommendedItem]
    reason: Annotated[
        str | None,
        Field(description="Why the list is short or in popularity order, and ids ignored."),
    ]


class SimilarAnswer(BaseModel):
    """The items similar to one item."""

    item_id: int | str
    known: Annotated[bool, Field(description="True where training saw the item.")]
    items: list[ScoredItem]
    reason: str | None


class FromModel(BaseModel):
    """An answer of one run."""

    model: Annotated[str, Field(description="Name of the run that answered.")]
    digest: Annotated[str, Field(description="Digest of its weights, as /v1/models has it.")]


class RecommendResponse(FromModel):
    """A list for each user, in the order of the request."""

    answers: list[UserAnswer]


class SimilarResponse(FromModel):
    """A list for each item, in the order of the request."""

    answers: list[SimilarAnswer]


class FoundItem(BaseModel):
    """One item of the catalogue."""

    item_id: int | str
    title: str | None = None


class ItemsResponse(FromModel):
    """Items found, those with the most users first."""

    items: list[FoundItem]


class FoundUser(BaseModel):
    """One user of the run."""

    user_id: int | str
    num_items: Annotated[int, Field(description="Items of the catalogue that the user has.")]


class UsersResponse(FromModel):
    """Users found, in the order of the run."""

    users: list[FoundUser]


class HistoryResponse(FromModel):
    """The items of one user, events included, those with the most users first."""

    user_id: int | str
    known: Annotated[bool, Field(description="True where the run knows the user's id.")]
    num_items: Annotated[int, Field(description="Items of the catalogue that the user has.")]
    items: list[FoundItem]


class ModelInfo(BaseModel):
    """One run that answers."""

    name: str
    digest: str
    kind: Annotated[str, Field(description="What was trained: vae, neumf, ease and so on.")]
    num_users: int
    num_items: int
    rules: Annotated[list[str], Field(description="Names of the rules that requests may name.")]
    loaded_at: Annotated[str, Field(description="Time in UTC, ISO 8601.")]


class ModelsResponse(BaseModel):
    """The runs that answer; the first does where a request names none."""

    models: list[ModelInfo]
    reload_failed: Annotated[
        str | None, Field(description="Why the last load of runs failed: those before go on.")
    ]


class Status(BaseModel):
    """State of the service."""

    status: str


class ErrorInfo(BaseModel):
    """Mistake of a request, or state of the service, that keeps it from an answer."""

    code: str
    message: str
    field: Annotated[str | None, Field(description="Place in the body, as users.0.history.")]


class ErrorResponse(BaseModel):
    """Every answer that is no success."""

    error: ErrorInfo
