"""Settings of a blend: its runs, and the share of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from foretaste._util.settings import Range, check_settings, from_document
from foretaste.errors import SettingError
from foretaste.models.config import ModelConfig
from foretaste.models.registry import config_class


@dataclass(frozen=True, kw_only=True)
class Member:
    """A run whose model is part of a blend."""

    run: str
    """The run's directory, when the blend was made."""

    model: str
    """Name of its model."""

    settings: Mapping[str, Any]
    """Settings of its model, as JSON values."""

    weight: Annotated[float, Range(at_least=0)]
    """Factor of the run's scores in the sum."""

    num_items: int | None = None
    """Number of items that the run lists; None if it lists the same items as the blend."""

    def __post_init__(self) -> None:
        check_settings(self)

    def model_config(self) -> ModelConfig:
        """Return its settings, an instance of its model's config class."""
        return from_document(config_class(self.model), self.settings)


@dataclass(frozen=True, kw_only=True)
class BlendConfig(ModelConfig):
    """A weighted sum of the scores of other runs of the same dataset."""

    has_epochs = False
    has_large_products = False

    members: Mapping[str, Member] = field(default_factory=dict)
    """The runs by number, in the order in which they were named."""

    @property
    def uses_order(self) -> bool:  # type: ignore[override]
        return any(member.model_config().uses_order for member in self.members.values())

    @property
    def uses_features(self) -> bool:  # type: ignore[override]
        weighted = (member for member in self.members.values() if member.weight)
        return any(member.model_config().uses_features for member in weighted)

    @property
    def keeps_features(self) -> bool:  # type: ignore[override]
        return any(member.model_config().keeps_features for member in self.members.values())

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(member.weight for member in self.members.values()):
            raise SettingError(
                "a blend needs a run with a positive weight; make one with foretaste blend RUN RUN "
                "(foretaste.blend in Python)"
            )
