"""Reading of shards that torch.distributed.checkpoint wrote, without running code from a file.

Its own reader unpickles `.metadata` without restrictions, and also values that are not tensors. This one builds only
descriptions of tensors from that file, and refuses entries of another kind and files outside of the folder.
"""

import io
import pickle
from pathlib import Path, PosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.filesystem import FileSystemReader

from ...files.reading import MOST_JSON, read_bounded
from .manifest import DamagedError, damaged

NAME = ".metadata"
MADE = {
    (one.__module__, one.__qualname__): one
    for one in (
        metadata.Metadata,
        metadata.TensorStorageMetadata,
        metadata.TensorProperties,
        metadata.ChunkStorageMetadata,
        metadata.MetadataIndex,
        metadata.StorageMeta,
        metadata._MEM_FORMAT_ENCODING,
        filesystem._StorageInfo,
        torch.Size,
    )
} | {
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("pathlib", "PosixPath"): PosixPath,
    ("pathlib._local", "PosixPath"): PosixPath,
}
DTYPES = {name: one for name, one in vars(torch).items() if isinstance(one, torch.dtype)}


class _Descriptions(pickle.Unpickler):
    """An unpickler that builds descriptions of tensors and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in MADE:
            return MADE[module, name]
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


class ShardReader(FileSystemReader):
    """The reader of torch.distributed.checkpoint for a folder of tensors alone. Raises: DamagedError."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> metadata.Metadata:
        """Return the content of the folder's `.metadata`."""
        where = Path(self.path) / NAME
        try:
            data = read_bounded(where, MOST_JSON, follow=False)
            found = self._checked(where, _Descriptions(io.BytesIO(data)).load())
        except DamagedError:
            raise
        except Exception as cause:  # damaged bytes can raise anything in an unpickler
            said = next(iter(str(cause).splitlines()), "")[:80]
            raise DamagedError(
                damaged(where, f"unreadable ({type(cause).__name__}: {said})", "shards of tensors")
            ) from cause
        found.storage_meta = metadata.StorageMeta(load_id=self.load_id)
        return found

    def _checked(self, where: Path, read: Any) -> metadata.Metadata:
        found: metadata.Metadata = read
        names = {path.name for path in where.parent.iterdir() if path.is_file() and not path.is_symlink()}
        fits = (
            isinstance(found, metadata.Metadata)
            and isinstance(found.state_dict_metadata, dict)
            and all(isinstance(one, metadata.TensorStorageMetadata) for one in found.state_dict_metadata.values())
            and isinstance(found.storage_data, dict)
            and all(
                isinstance(one, filesystem._StorageInfo)
                and one.relative_path in names
                and not one.transform_descriptors
                for one in found.storage_data.values()
            )
        )
        if not fits:
            raise DamagedError(
                damaged(where, "of other values, or of files elsewhere", "shards of tensors in this folder")
            )
        return found
