# One fills the volume while another appends rows, each synced, until either is told that there is no
# room. What is removed is room again, all of it, and what was written is there.
cd /data; echo kept >first; dd if=/dev/urandom of=held bs=4k count=9 2>/dev/null
append() {
    n=0
    while n=$((n + 1)); printf 'row %d %04000d\n' $n $n | dd of=rows bs=8k oflag=append conv=notrunc,fsync 2>/tmp/row; do
        echo $n >/tmp/rows
    done
    echo "row $n: $(grep dd: /tmp/row)"
}
append & appends=$!
fill() { dd if=/dev/zero of=big bs=64k 2>&1 | grep dd:; echo "full at $(stat -c %s big);"; }
fill; wait $appends; echo "rows kept $(cat /tmp/rows);"
i=0; while mkdir folder-$i 2>/tmp/mkdir; do i=$((i + 1)); done; cat /tmp/mkdir; rmdir folder-* 2>/dev/null
dd if=held of=more bs=4k conv=fsync 2>&1 | grep dd:; rm more
rm big; sync; fill; rm big; sync
dd if=/dev/urandom of=again bs=64k count=64 conv=fsync 2>/dev/null; cat first
echo '-- begin --'; find . -type f -exec md5sum {} +; echo '-- end --'
