"""Small language models whose loss curves collapse: a decoder-only torch family, its data and its training loop.

==================  =======================================================================================
``architecture``    one model's shape and its exact parameter and FLOP counts (no torch)
``families``        published families as data (no torch)
``parameterisation``  multipliers of SP, μP and CompleteP for every role a parameter can play (no torch)
``settings``        the three blocks of settings of a run, checked (no torch)
``data``            text or tokens as batches that are a function of (data seed, step) (no torch)
``model``           the torch module
``optimiser``       AdamW with the parameterisation's groups
``runtime``         threads, denormals, allocator, device and precision of a run
``loop``            the training loop: log, checkpoint, resume bit for bit
``trainable``       ``train(settings, session)`` and ``recipe(settings)``: what the engine calls
==================  =======================================================================================

Importing this package, or any module marked "no torch" and ``trainable``, does not load torch.
"""
