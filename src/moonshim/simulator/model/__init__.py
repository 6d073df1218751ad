"""The scripted model: a scenario and the conversation so far -> the response that the model intends."""
