"""Options of logging to Weights & Biases."""

from dataclasses import dataclass, field
from typing import Literal

from cwfed.messages.checks import require_at_least

WandbMode = Literal["online", "offline", "disabled"]

_MOST_CHARACTERS = 128
_NOT_IN_PROJECTS = "/\\#?%:"


@dataclass
class WandbOptions:
    """Content and place of what ``--logger wandb`` sends to Weights & Biases.

    Attributes:
        project: The project.
        entity: The user or team that it belongs to; null takes the account's default.
        group: Runs that are compared; null takes the data set and the partition.
        job_type: Kind of the run; null takes the method's name.
        name: Name of the run; null takes the run folder's.
        tags: Tags, beside one for the seed.
        mode: online needs an account; offline writes into the run folder, to be uploaded later
            with ``wandb sync``; disabled logs nothing. null takes the environment variable
            WANDB_MODE, else online.
        heatmaps: Rounds between heat maps; round 0 and the last always have them. null spreads
            about 20 over the run, 0 draws none.
        models: Upload the models that the clients received in the best and in the last round; they
            are kept in the run folder, too.
    """

    project: str = "cwfed"
    entity: str | None = None
    group: str | None = None
    job_type: str | None = None
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    mode: WandbMode | None = None
    heatmaps: int | None = None
    models: bool = False

    def __post_init__(self) -> None:
        """Check what W&B would refuse after the run has begun."""
        if not self.project or set(self.project) & set(_NOT_IN_PROJECTS):
            raise ValueError(
                f"wandb.project: expected a name without any of {_NOT_IN_PROJECTS}, "
                f"got {self.project!r}"
            )
        for name in ("project", "group", "job_type", "name"):
            value = getattr(self, name)
            if value is not None and len(value) > _MOST_CHARACTERS:
                raise ValueError(
                    f"wandb.{name}: expected at most {_MOST_CHARACTERS} characters, "
                    f"got {len(value)}"
                )
        for tag in self.tags:
            if not 1 <= len(tag) <= 64:
                raise ValueError(f"wandb.tags: expected 1 to 64 characters each, got {tag!r}")
        if self.heatmaps is not None:
            require_at_least("wandb.heatmaps", self.heatmaps, 0)
