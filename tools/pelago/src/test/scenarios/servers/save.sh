# 200 MB are saved by a fork while clients go on writing; after a kill there is again what there was
# at the fork. The lines of standard output are compared.
cd /tmp || exit
serve() {
    redis-server --save '' --rdbcompression no --enable-debug-command yes --dir /tmp >>/tmp/log 2>&1 &
    server=$!
    until [ "$(redis-cli ping 2>&1)" = PONG ]; do kill -0 $server || exit; done
}
saving() { case "$(redis-cli info persistence)" in *rdb_bgsave_in_progress:1*) ;; *) false ;; esac; }
serve
redis-cli debug populate 2000 key 100000 >&2
redis-cli set last before >&2
redis-cli bgsave >&2
redis-cli set last after >&2
rounds=0
while saving; do
    redis-benchmark -q -n 2000 -c 10 -r 1000 -d 1000 -t set >&2 || echo "a client failed"
    rounds=$((rounds + 1))
done
echo "$rounds rounds beside it" >&2
[ $rounds -gt 0 ] || echo "nothing was written meanwhile"
case "$(redis-cli info persistence)" in *rdb_last_bgsave_status:ok*) echo saved ok ;; *) cat /tmp/log ;; esac
kill -9 $server
wait $server
echo killed $?
serve
echo "$(redis-cli dbsize) $(redis-cli strlen key:1999) $(redis-cli get last)"
redis-cli shutdown nosave
wait $server
echo ended $?
