"""What a terminal shows while runs go on, and after."""
