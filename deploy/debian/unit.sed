# Makes the unit of the package out of deploy/pushup.service.
2,/^# (StateDirectory=/d
s,/opt/pushup/bin/,/usr/bin/,
s,/etc/pushup\.toml,/etc/pushup/pushup.toml,
# The settings file names the keys' file, and the user of the package is in no further group.
/^# Keys are in files/d
/^SupplementaryGroups=/d
/^Environment=PUSHUP_PUBLISH_KEYS_FILE=/d
s/as a temporary user/as its own user/
s/^DynamicUser=yes/User=pushup/
