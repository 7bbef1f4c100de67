// Lets main.go declare functions whose bodies are linked from other packages.
