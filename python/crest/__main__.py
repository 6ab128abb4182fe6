"""python -m crest: the program."""

from crest._program import main

main()
