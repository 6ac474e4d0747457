# What redis was told is there again after it was killed, and after it was shut down; between, the
# file is written anew by a fork. The lines of standard output are compared.
cd /tmp || exit
serve() {
    redis-server --save '' --appendonly yes --dir /tmp >>/tmp/log 2>&1 &
    server=$!
    until [ "$(redis-cli ping 2>&1)" = PONG ]; do kill -0 $server || exit; done
}
serve
number=0
while [ $number -lt 300 ]; do
    echo "SET key$number value$number"
    number=$((number + 1))
done | redis-cli | mawk '/OK/ { taken++ } END { print "taken", taken }'
redis-cli bgrewriteaof >&2
until case "$(redis-cli info persistence)" in *aof_rewrite_in_progress:0*) ;; *) false ;; esac do :; done
redis-cli set last one
kill -9 $server
wait $server
echo killed $?
serve
echo "$(redis-cli dbsize) $(redis-cli get key299) $(redis-cli get last) $(redis-cli incr count)"
redis-cli shutdown
wait $server
echo ended $?
serve
echo "$(redis-cli dbsize) $(redis-cli get key299) $(redis-cli get count)"
redis-cli shutdown
wait $server
echo ended $?
