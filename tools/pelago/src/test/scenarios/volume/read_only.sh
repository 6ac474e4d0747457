# Each way to change something on a volume that is only read; what is not refused is told.
cd /data
refuse() {
    "$@" 2>/tmp/e && echo "done: $*"
    grep -q 'Read-only file system' /tmp/e || echo "told: $*: $(cat /tmp/e)"
}
refuse touch new; refuse sh -c 'echo x >size-1'; refuse sh -c 'echo x >>size-1'; refuse sh -c 'echo x >new'
refuse truncate -s 9 size-4096; refuse mkdir d; refuse rmdir a; refuse rm -f size-1; refuse rm -r many
refuse mv size-1 two; refuse mv size-1 size-4095; refuse ln size-1 two; refuse ln -s x y; refuse mkfifo f
refuse chmod 600 size-1; refuse chown 7:8 size-1; refuse touch -d '2001-02-03 04:05:06' size-1
refuse dd if=/bin/busybox of=size-4096 bs=4k count=1 conv=notrunc
sync && sync size-1 && grep -q '^/dev/[a-z]* /data ext4 ro' /proc/mounts && tail -n 1 script && echo "all refused"
