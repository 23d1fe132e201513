from loadtest.kit.server import journal, main

"""The server of `journal` that commits each publication separately."""


if __name__ == "__main__":
    journal.GROUP_LIMIT = 1
    main()
