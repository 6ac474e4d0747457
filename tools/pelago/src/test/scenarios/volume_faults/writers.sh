# What writes to the volume while the disk's server dies: one appends rows to a file, and two sqlite
# add rows to one table. Each row is synced, and nobody may see an error. It goes on until a line
# comes, and tells how many rows each one kept.
cd /data || exit 1
fail() {
    echo "writers: failed: $1"
    exit 1
}
sqlite3 db 'create table t(w integer, n integer, p text, primary key(w, n))' || fail "no table"

told() {
    echo $2 >/tmp/kept.$1
    [ $(($2 % 20)) -ne 1 ] || echo "writers: $1 is at $2"
}
append() {
    n=0
    while [ ! -e /tmp/stop ]; do
        n=$((n + 1))
        printf 'row %d\n' $n | dd of=rows bs=4k oflag=append conv=notrunc,fsync 2>/tmp/dd \
            || fail "row $n: $(cat /tmp/dd)"
        told 0 $n
    done
}
# One process for all rows: it is given a row, and answers when that is committed.
insert() {
    mkfifo /tmp/in.$1 /tmp/out.$1
    sqlite3 -batch -bail -cmd '.timeout 200000' db </tmp/in.$1 >/tmp/out.$1 2>/tmp/error.$1 &
    exec 3>/tmp/in.$1 4</tmp/out.$1
    n=0
    while [ ! -e /tmp/stop ]; do
        n=$((n + 1))
        echo "insert into t values($1, $n, hex(randomblob($((n % 700))))); select $n;" >&3
        read -r answer <&4
        [ "$answer" = $n ] || fail "sqlite $1 answers $answer for row $n: $(cat /tmp/error.$1)"
        told $1 $n
    done
    exec 3>&-
    wait $! || fail "sqlite $1: $(cat /tmp/error.$1)"
}

append &
insert 1 &
insert 2 &
read -r _
touch /tmp/stop
wait
for i in 0 1 2; do
    echo "writers: kept $i $(cat /tmp/kept.$i);"
done
