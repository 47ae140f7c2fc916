"""Schemas of the API: bodies of requests, which are checked, and bodies of responses.

Ids are integers or strings, as in the dataset of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from time import time
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
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

from foretaste.data.ids import MAX_BYTES
from foretaste.recommend.config import ListRequest

_MAX_ID = 1024
"""Most characters of an id, as reasons repeat unknown ids."""

MAX_K = 1000
"""Largest k; the limit of a request's body does not bound its answer."""

MAX_USERS = 256
"""Most users of a request, and most items of a request for similar ones."""

_INT64 = 2**63


_AHEAD_S = 86_400
"""Seconds that an event may lie ahead of this clock, which may be late, or in another zone."""


def _as_one(union: object, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return the schema of an id, with one error message for both of its types."""
    # pydantic's error for a union shows the first branch: text that is too long would be called no
    # valid integer.
    message = f"an id is an integer of 64 bits or text of at most {_MAX_ID:,} characters"
    return custom_error_schema(handler(union), "id", custom_error_message=message)


# Strict: by default pydantic takes true for 1, and another user would be answered.
AnyId = Annotated[
    Annotated[StrictInt, Field(ge=-_INT64, lt=_INT64)]
    | Annotated[str, StringConstraints(strict=True, max_length=_MAX_ID)],
    GetPydanticSchema(_as_one),
]


def _check_event_id(value: int | str) -> int | str:
    if not 0 < len(str(value).encode()) <= MAX_BYTES or "\0" in str(value):
        raise ValueError(f"an id of an event has 1 to {MAX_BYTES:,} bytes, none of them 0")
    return value


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    with suppress(ValueError):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment.timestamp()
    raise ValueError(
        "a time is a number of seconds since 1970, or text in ISO 8601 with a UTC offset, such as "
        "2024-05-31T09:30:00Z"
    )


def _check_time(seconds: float) -> float:
    if not 0 <= seconds <= time() + _AHEAD_S:
        raise ValueError(
            "a time is not before 1970, and not more than a day ahead of the service's clock; "
            "numbers are seconds since 1970, not milliseconds"
        )
    return seconds


_Time = Annotated[
    float,
    # Strict: otherwise pydantic takes text and false for a time.
    Field(strict=True, allow_inf_nan=False),
    BeforeValidator(_seconds, json_schema_input_type=float | str),
    AfterValidator(_check_time),
]
_KeptId = Annotated[AnyId, AfterValidator(_check_event_id)]
_K = Annotated[StrictInt, Field(ge=1, le=MAX_K)]


FieldIds = tuple[str, Literal["user", "item"], Sequence[int | str]]
"""The place of a field in a body, the table of its ids, and the ids."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class User(_Body):
    """A user to recommend to, by a known id, a history, or both."""

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
        Field(description="Items of the user, besides the items that the run has for the id."),
    ] = []

    @property
    def kept_id(self) -> str | None:
        """The id as text, as in events; None if events cannot have it."""
        # PostgreSQL takes no text with a NUL, not even in a comparison.
        return None if self.user_id is None or "\0" in str(self.user_id) else str(self.user_id)

    @model_validator(mode="after")
    def _is_someone(self) -> User:
        if self.user_id is None and "history" not in self.model_fields_set:
            raise ValueError("a user needs a user_id, a history or both")
        return self


class RecommendBody(_Body):
    """Users to recommend to, and the options of their lists."""

    model: Annotated[str | None, Field(description="Name of a run; by default the first.")] = None
    users: Annotated[list[User], Field(min_length=1, max_length=MAX_USERS)]
    k: Annotated[_K, Field(description="Items per list.")] = 10
    exclude: Annotated[list[AnyId], Field(description="Items to leave out.")] = []
    candidates: Annotated[
        list[AnyId] | None,
        Field(description="Items that may be recommended, such as those in stock."),
    ] = None
    include_seen: Annotated[
        StrictBool, Field(description="Also recommend items that the user has already or disliked.")
    ] = False
    rules: Annotated[
        list[str], Field(description="Names of rules; items must meet all of them.")
    ] = []
    max_per: Annotated[
        dict[str, Annotated[StrictInt, Field(ge=1)]],
        Field(description="Most items of a list with the same value in a column, by column."),
    ] = {}
    reasons: Annotated[
        StrictBool,
        Field(description="Name the items of the history that are nearest to each listed item."),
    ] = False

    def ids(self) -> Iterator[FieldIds]:
        """Yield the ids of each field that a run may know."""
        for number, user in enumerate(self.users):
            yield f"users.{number}.history", "item", user.history
        yield "exclude", "item", self.exclude
        yield "candidates", "item", self.candidates or ()

    def request(self) -> ListRequest:
        """Return what the lists of all users hold."""
        return ListRequest(
            k=self.k,
            exclude=tuple(self.exclude),
            candidates=None if self.candidates is None else tuple(self.candidates),
            include_seen=self.include_seen,
            rules=tuple(self.rules),
            max_per=tuple(self.max_per.items()),
            reasons=self.reasons,
        )


class SimilarBody(_Body):
    """Items whose similar items are requested."""

    model: str | None = None
    item_ids: Annotated[list[AnyId], Field(min_length=1, max_length=MAX_USERS)]
    k: _K = 10

    def ids(self) -> Iterator[FieldIds]:
        """Yield the ids of each field that a run may know."""
        yield "item_ids", "item", self.item_ids


class SearchQuery(_Body):
    """A search among the items of the catalogue."""

    model: str | None = None
    query: Annotated[str, Field(max_length=200)] = ""
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 10


class HistoryQuery(_Body):
    """The user of a history."""

    model: str | None = None
    user_id: Annotated[str, Field(max_length=_MAX_ID, pattern=r"^[^\x00]*$", examples=["7"])]
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 500


class EventBody(_Body):
    """An interaction that happened."""

    event_id: Annotated[_KeptId, Field(description="Id of the event; it is stored once.")]
    user_id: _KeptId
    item_id: _KeptId
    event_type: Annotated[
        Annotated[str, AfterValidator(_check_event_id)] | None,
        Field(
            description="A type such as purchase, for a later training; dislike alone takes the "
            "item out of the user's lists."
        ),
    ] = None
    time: Annotated[
        _Time | None,
        Field(
            description="Time in seconds since 1970, or in ISO 8601 with a UTC offset; by default "
            "now. It is not more than a day ahead of the service's clock."
        ),
    ] = None


class EventsBody(_Body):
    """Events to store."""

    events: Annotated[list[EventBody], Field(min_length=1)]

    def ids(self) -> Iterator[FieldIds]:
        """Yield the ids of each field that a run may know: all users, then all items."""
        for number, event in enumerate(self.events):
            yield f"events.{number}.user_id", "user", (event.user_id,)
        for number, event in enumerate(self.events):
            yield f"events.{number}.item_id", "item", (event.item_id,)


class WithdrawBody(_Body):
    """Events to withdraw, by their ids or by their users."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["event_ids"]}, {"required": ["user_ids"]}]}
    )

    event_ids: Annotated[list[_KeptId], Field(description="Ids of events.")] = []
    user_ids: Annotated[
        list[_KeptId],
        Field(max_length=MAX_USERS, description="Users whose events are all withdrawn."),
    ] = []

    @model_validator(mode="after")
    def _names_events(self) -> WithdrawBody:
        if not self.event_ids and not self.user_ids:
            raise ValueError("name events by event_ids, or users by user_ids")
        return self


class ReloadBody(_Body):
    """An empty object: a reload has no options."""


class EventsResponse(BaseModel):
    """Counts of events, which are all on the disk now."""

    new: Annotated[int, Field(description="Number of events with a new id.")]
    repeated: Annotated[int, Field(description="Number of events that were stored already.")]
    unknown_items: Annotated[
        int, Field(description="Number of events with items unknown to the first run.")
    ]


class WithdrawResponse(BaseModel):
    """Counts of withdrawn events; only their ids remain."""

    withdrawn: Annotated[int, Field(description="Number of events that were stored until now.")]
    not_kept: Annotated[
        int,
        Field(description="Number of ids without an event; a later event with the id is ignored."),
    ]


class ScoredItem(BaseModel):
    """One item of a list."""

    item_id: int | str
    score: Annotated[float, Field(description="Score, comparable within one list only.")]
    title: Annotated[str | None, Field(description="Title, if the run has titles.")] = None


class RecommendedItem(ScoredItem):
    """One item of a user's list."""

    because: Annotated[
        list[ScoredItem] | None,
        Field(description="The nearest items of the history, if the request asks for reasons."),
    ] = None


class UserAnswer(BaseModel):
    """The list of one user."""

    user_id: int | str | None
    known: Annotated[bool, Field(description="True if the run knows the user's id.")]
    items: list[RecommendedItem]
    reason: Annotated[
        str | None,
        Field(description="Reason for a short list or popularity order, with the ignored ids."),
    ]


class SimilarAnswer(BaseModel):
    """The items similar to one item."""

    item_id: int | str
    known: Annotated[bool, Field(description="True if training saw the item.")]
    items: list[ScoredItem]
    reason: str | None


class FromModel(BaseModel):
    """An answer of one run."""

    model: Annotated[str, Field(description="Name of the run that answered.")]
    digest: Annotated[str, Field(description="Digest of its weights, as in /v1/models.")]


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
    """The found items, those with the most users first."""

    items: list[FoundItem]


class HistoryResponse(FromModel):
    """The items of one user, events included: the newest or the most popular first."""

    user_id: int | str
    known: Annotated[bool, Field(description="True if the run knows the user's id.")]
    num_items: Annotated[int, Field(description="Items of the catalogue that the user has.")]
    items: list[FoundItem]


class ModelInfo(BaseModel):
    """One run that answers."""

    name: str
    digest: str
    kind: Annotated[str, Field(description="Name of the model, such as vae, neumf or ease.")]
    num_users: int
    num_items: int
    rules: Annotated[list[str], Field(description="Names of the rules for requests.")]
    loaded_at: Annotated[
        str, Field(description="When its weights were loaded: a time in UTC, ISO 8601.")
    ]


class ModelsResponse(BaseModel):
    """The runs that answer; the first answers requests that name none."""

    models: list[ModelInfo]
    reload_failed: Annotated[
        str | None, Field(description="Reason why the last reload failed, if it did.")
    ]


class Status(BaseModel):
    """State of the service."""

    status: str


class ErrorInfo(BaseModel):
    """The reason why a request is not answered."""

    code: str
    message: str
    field: Annotated[str | None, Field(description="Place in the body, such as users.0.history.")]


class ErrorResponse(BaseModel):
    """The body of every error."""

    error: ErrorInfo
