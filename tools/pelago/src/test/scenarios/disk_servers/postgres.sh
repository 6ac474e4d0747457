# As Debian's set-up does it: a user of its own, and a folder for the socket. What parallel workers
# have in common is of System V: files of /dev/shm are mapped by one program and its forked children.
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
exec $as_user $bin/postgres -D /data/base \
    -c listen_addresses='*' -c shared_buffers=16MB -c max_connections=20 -c dynamic_shared_memory_type=sysv
