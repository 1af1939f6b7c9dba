"""A virtual environment for each peer library, made once from a pinned list of packages.

`python -m benchmarks.environments rejax` prints the path of that peer's python.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"
GYMNASIUM = ("gymnasium==1.4.0", "numpy==2.4.6")
OWN = (  # what runs of a language model need of ours
    "attrs==26.1.0",
    "matplotlib==3.11.2",
    "numpy==2.4.6",
    "pyyaml==6.0.3",
    "rich==15.0.0",
    "safetensors==0.8.0",
    "tensorboard==2.21.0",
    "tensordict==0.15.3",
    "tokenizers==0.23.3",
    "transformers==5.23.0",
    "tyro==1.0.17",
)

# One inner tuple is one call of pip. torch comes first and alone, so that what follows finds it already there.
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "rejax": (
        (
            "rejax==0.1.3",
            "gymnax==0.0.9",
            "jax==0.10.2",
            "jaxlib==0.10.2",
            "flax==0.12.8",
            "optax==0.2.8",
            "distrax==0.1.9",
            "chex==0.1.92",
            "tfp-nightly==0.26.0.dev20261027",
            *GYMNASIUM,
        ),
    ),
    "stable-baselines3": ((TORCH,), (TORCH, "stable-baselines3==2.9.2", *GYMNASIUM)),
    "pykeen": ((TORCH,), (TORCH, "pykeen==1.11.1")),
    "torchrl": ((TORCH,), (TORCH, "torchrl==0.14.1", "tensordict==0.14.3", *GYMNASIUM)),
    "trl": (
        (TORCH,),
        (
            TORCH,
            "trl==1.16.0",
            "accelerate==1.15.0",
            "datasets==5.2.0",
            "math-verify==0.9.0",  # of TRL's accuracy_reward
            *OWN,
        ),
    ),
    "verifiers": ((TORCH,), (TORCH, "verifiers[ta]==0.4.0", *OWN)),
    "openenv": ((TORCH,), (TORCH, "openenv==0.10.0", *OWN)),
}


class PeerError(RuntimeError):
    """A peer's environment could not be made."""


def environment(name: str) -> Path:
    """The python of the peer `name`, in `.peers/NAME` of the repository root; installed on the first call.

    Raises: PeerError, in one line, when the name is unknown or pip fails.
    """
    if name not in PACKAGES:
        raise PeerError(f"environment: no peer {name!r}; there are {', '.join(PACKAGES)}")
    home = ROOT / ".peers" / name
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = home / "packages.sha256"
    digest = fingerprint(name)
    if python.exists() and stamp.exists() and stamp.read_text() == digest:
        return python
    venv.create(home, clear=True, with_pip=True, symlinks=os.name != "nt")
    for packages in PACKAGES[name]:
        install(name, python, packages)
    stamp.write_text(digest)
    return python


def fingerprint(name: str) -> str:
    """What an environment was made from: the packages, pip call by pip call, and the version of python."""
    text = repr((PACKAGES[name], sys.version_info[:2]))
    return hashlib.sha256(text.encode()).hexdigest()


def install(name: str, python: Path, packages: tuple[str, ...]) -> None:
    """Run pip once. Raises: PeerError with pip's last error line."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise PeerError(f"environment: pip failed for {name} on {' '.join(packages)}: {errors[-1]}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m benchmarks.environments {{{','.join(PACKAGES)}}}")
    try:
        print(environment(sys.argv[1]))
    except PeerError as error:
        sys.exit(str(error))
