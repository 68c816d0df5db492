"""What a recipe will need before anyone waits for it: memory of a GPU and seconds of a step."""
