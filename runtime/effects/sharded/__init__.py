"""Checkpoints of training on several ranks: whole or not at all, and good for any number of ranks afterwards.

    group = joined()                                      # group.py: on each rank, once
    with locked(run, group), saving(run, group=group) as saver:                             # later.py: beside training
        saver.save(step, tree, machine=state)             # DTensors are divided, plain tensors all ranks hold alike
    path = latest(run, group=group)                       # loading.py
    checkpoint = load(path, like, group=group)            # `like` says how many ranks there are now

saving.py writes at once; forms.py has the three forms; modules.py is for torch's own modules and optimisers; weights.py reads
folders of weights, whoever wrote them, and stored.py says what is in them.
"""
