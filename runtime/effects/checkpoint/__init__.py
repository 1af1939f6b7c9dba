"""Checkpoints of training on several ranks: complete or not there at all, and loadable on any number of ranks.

    group = joined()                                      # group.py: on each rank, once
    with locked(run, group), saving(run, group=group) as saver:                             # async_save.py: during training
        saver.save(step, tree, machine=state)             # DTensors are sharded, plain tensors are equal on all ranks
    path = latest(run, group=group)                       # load.py
    checkpoint = load(path, like, group=group)            # `like` determines the current number of ranks

save.py saves synchronously; formats.py has the three forms; modules.py is for torch's own modules and optimisers.
"""
