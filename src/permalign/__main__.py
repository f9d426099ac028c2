from permalign.cli import main

main()
