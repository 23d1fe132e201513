# Makes the settings file of the package out of deploy/pushup.toml: with keys, and so that an upgrade, which restarts the
# server, loses no message.
s,/etc/pushup\.toml,/etc/pushup/pushup.toml,g
/^listen = /a\
\
# Who may publish: the keys in this file. The package has made one; root and the server can read it.\
publish_keys_file = "/etc/pushup/keys"
s,^# broadcast = .*,broadcast = "journal:/var/lib/pushup/journal.db",
