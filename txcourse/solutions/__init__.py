"""Reference solutions, one module per notebook; they import nothing of txcourse but one another."""
