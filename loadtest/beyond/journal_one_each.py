from loadtest.kit.server import journal_groups, main

"""The server of `journal` that commits each publication separately."""


if __name__ == "__main__":
    journal_groups.GROUP_LIMIT = 1
    main()
