"""`tsm.load`: a checkpoint or a .tsm file as an object that generates, scores and predicts."""
