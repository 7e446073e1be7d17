"""Hidden states to pooled rows. `build_pooler` makes a model's `DispatchPooler`; the rest is what it is made of."""
