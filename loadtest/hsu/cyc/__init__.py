"""A small CYC game system, as in Hsu §5.1 and Figure 12: a second application of the same framework.

Players find a game server through the coordinator, and play noughts and crosses there. The game servers and the
coordinator are built from PushUp's edge, service requestors and helper pools. A PushUp server takes their messages to
the players. None of them ever waits in its event loop: neither for a player, nor for another server, nor for the
database or DNS.

    player -> coordinator: where is a free place?
    player -> game server: join, move
    game server -> database helper, DNS helper: the player's record, and the name of their host
    game server -> PushUp -> players of the table: what happens there
    game server -> coordinator -> PushUp -> all players: how many play where

| file | contents |
|---|---|
| `game_server` | seats players at tables, and judges their moves |
| `coordinator_server` | knows the game servers, and how many players each has |
| `board` | the rules of the game |
| `helpers` | what the helpers ask the database and DNS |
| `json_server` | what both servers share: calls with JSON, on the edge |
"""
