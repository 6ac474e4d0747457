#!/bin/busybox sh
# What the guest of `disk-test` runs: it writes to the disk, and says of each piece of work that is
# kept (synced without an error) that it is; and it waits until that has been noted. Beside that it
# makes traffic that nobody promised anything about.
#
# Arguments: options of mount, and how many pieces of work.
export PATH=/bin
for name in cat dd mkdir mount mv rm sync; do
    [ -e /bin/$name ] || /bin/busybox ln -s busybox /bin/$name
done
fail() {
    echo "writer: $1"
    exit 1
}

# Data that nobody syncs is on its way soon.
echo 5 >/proc/sys/vm/dirty_writeback_centisecs
echo 10 >/proc/sys/vm/dirty_expire_centisecs
mkdir /mnt
mount -t ext4 -o "$1" /dev/vda /mnt || fail "cannot mount the disk"
echo "writer: mounted"

churn() {
    i=0
    while :; do
        i=$((i + 1))
        mkdir -p /mnt/churn/$((i % 5))
        dd if=/bin/busybox of=/mnt/churn/$((i % 5))/$((i % 31)) bs=4k count=$((i % 9)) 2>/dev/null
        mv /mnt/churn/$((i % 5))/$((i % 31)) /mnt/churn/moved-$((i % 13)) 2>/dev/null
        rm -rf /mnt/churn/$(((i + 2) % 5))
        # A file that is open and has no name: an orphan.
        exec 5>/mnt/orphan-$((i % 3))
        rm /mnt/orphan-$((i % 3))
        cat /mnt/churn/moved-0 >&5 2>/dev/null
    done
}
churn &
churning=$!

n=0
while [ $n -lt "$2" ]; do
    n=$((n + 1))
    if [ $((n % 2)) -eq 0 ]; then
        # The state as a whole, by its name.
        printf 'state %d\n' $n >/mnt/state.new && sync /mnt/state.new && mv /mnt/state.new /mnt/state && sync /mnt \
            || fail "cannot replace the state"
    else
        # A row more, of many lengths: filled up with zeros in front.
        printf 'row %d %0*d\n' $n $((n * 37 % 300 + 1)) $n \
            | dd of=/mnt/rows bs=4k oflag=append conv=notrunc,fsync 2>/dev/null || fail "cannot append a row"
    fi
    echo "writer: kept $n;"
    read -r _ || fail "nobody notes what is kept"
done
kill $churning
