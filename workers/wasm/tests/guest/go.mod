module guest

go 1.24
