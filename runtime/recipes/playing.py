"""Options of the evaluation of a policy by whole episodes. Imports no torch."""

from typing import Literal

from attrs import frozen

from ..runs.arguments import check_whole


@frozen
class Playing:
    """Episodes, played by the policy."""

    episodes: int = 100  # of the evaluation at the end

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_whole("--episodes", self.episodes, 1)


@frozen
class PlayedEpisodes:
    """Play episodes with the newest checkpoint's policy."""

    episodes: int = 100  # how many
    seed: int = 0  # decides where they begin
    action: Literal["mode", "sample"] = "mode"  # "mode" takes the likeliest action, "sample" draws one

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_whole("--episodes", self.episodes, 1)
