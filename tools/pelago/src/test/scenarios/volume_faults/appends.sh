# What writes to the volume while the volume's own server dies: rows are appended to a file and
# synced; what fails is told, and tried again. For each line `look` it tells what a description that
# was open before gives, and one that is opened anew. A line `stop` ends it.
cd /data || exit 1
append() {
    n=0
    while [ ! -e /tmp/stop ]; do
        n=$((n + 1))
        until printf 'row %d\n' $n | dd of=rows bs=4k oflag=append conv=notrunc,fsync 2>/tmp/dd; do
            echo "appends: told: $(grep dd: /tmp/dd)"
        done
        echo $n >/tmp/kept
        [ $((n % 20)) -ne 1 ] || echo "appends: at $n"
    done
}
# One that has a file of the volume open, and forks.
fork() {
    while [ ! -e /tmp/stop ]; do
        (:)
    done
    echo forked >/tmp/forked
}
exec 6<held
append &
fork &
while read -r word && [ "$word" = look ]; do
    echo "appends: open: $(head -c 4 <&6 2>&1)"
    exec 6<held
    echo "appends: again: $(head -c 4 <&6 2>&1)"
done
touch /tmp/stop
wait
cat /tmp/forked >/dev/null || exit 1
echo "appends: kept $(cat /tmp/kept);"
