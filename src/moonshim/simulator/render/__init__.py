"""A question -> the prompt that the model is given, as each generation has it rendered."""
