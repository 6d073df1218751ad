"""The scripted model: a scenario and the conversation so far -> what the model intends to say."""
