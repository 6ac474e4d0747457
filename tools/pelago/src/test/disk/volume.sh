# What our own guest of `disk-test` runs on its volume: one works on files as `writer.sh` does, and
# two sqlite add rows to one table. Each says of each piece of work that is kept that it is, and
# does not wait until that is noted: a mark may come late, never early. Beside that there is traffic
# that nobody promised anything about.
#
# Argument: how many pieces of work each does.
fail() {
    echo "writer: failed: $1"
    exit 1
}
cd /data || fail "no volume"
# A journal that comes back would take a row with it: its end is synced, too.
sql() {
    sqlite3 -batch -bail -cmd '.timeout 200000' -cmd 'pragma synchronous = extra' db "$@"
}
sql 'create table t(w integer, n integer, p text, primary key(w, n))' || fail "no table"
sync

churn() {
    i=0
    while [ ! -e /tmp/stop ]; do
        i=$((i + 1))
        mkdir -p churn/$((i % 5))
        dd if=/bin/busybox of=churn/$((i % 5))/$((i % 31)) bs=4k count=$((i % 9)) 2>/dev/null
        mv churn/$((i % 5))/$((i % 31)) churn/moved-$((i % 13)) 2>/dev/null
        rm -rf churn/$(((i + 2) % 5))
        # A file that is open and has no name: an orphan.
        exec 5>orphan-$((i % 3))
        rm orphan-$((i % 3))
        cat churn/moved-0 >&5 2>/dev/null
    done
}
files() {
    n=0
    while [ $n -lt $1 ]; do
        n=$((n + 1))
        if [ $((n % 2)) -eq 0 ]; then
            printf 'state %d\n' $n >state.new && sync state.new && mv state.new state && sync . \
                || fail "cannot replace the state"
        else
            printf 'row %d %0*d\n' $n $((n * 37 % 300 + 1)) $n \
                | dd of=rows bs=4k oflag=append conv=notrunc,fsync 2>/dev/null || fail "cannot append a row"
        fi
        echo "writer: kept 0 $n;"
    done
}
# One process for all rows: it is given a row, and answers when that is committed.
rows() {
    mkfifo /tmp/in.$1 /tmp/out.$1
    sql </tmp/in.$1 >/tmp/out.$1 2>/tmp/error.$1 &
    exec 3>/tmp/in.$1 4</tmp/out.$1
    n=0
    while [ $n -lt $2 ]; do
        n=$((n + 1))
        echo "insert into t values($1, $n, hex(randomblob($((n * 37 % 700))))); select $n;" >&3
        read -r answer <&4
        [ "$answer" = $n ] || fail "sqlite $1 answers $answer for row $n: $(cat /tmp/error.$1)"
        echo "writer: kept $1 $n;"
    done
    exec 3>&-
    wait $! || fail "sqlite $1: $(cat /tmp/error.$1)"
}

churn &
churning=$!
files $1 &
first=$!
rows 1 $1 &
second=$!
rows 2 $1 &
wait $first && wait $second && wait $! || exit 1
touch /tmp/stop
wait $churning
echo "writer: done"
