# As Debian's set-up does it: a user of its own, and a folder for the socket. The configuration is
# the one that PostgreSQL makes: 128 MiB of buffers in common, and files of /dev/shm for what
# parallel workers have in common.
set -e
bin=/usr/lib/postgresql/15/bin
grep -q ^postgres: /etc/passwd || echo 'postgres:x:101:33::/data:/bin/sh' >>/etc/passwd
mkdir -p /var/run/postgresql /data/base
chown 101 /var/run/postgresql /data/base
as_user='setpriv --reuid 101 --regid 33 --clear-groups'
if ! [ -e /data/base/PG_VERSION ]; then
    $as_user $bin/initdb -D /data/base -A trust >/dev/null
    echo 'host all all all trust' >>/data/base/pg_hba.conf
fi
exec $as_user $bin/postgres -D /data/base -c listen_addresses='*'
