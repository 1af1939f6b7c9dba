"""One update by several processes: the partition of a batch over ranks, and the reduction of their results."""
