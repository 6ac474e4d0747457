# What our own guest runs on a volume whose power was cut: it reads all that `volume.sh` wrote, and
# writes once more.
cd /data || exit 1
echo "look: table"
if [ -e db ]; then
    sqlite3 db "$1"
fi
echo "look: end"
[ ! -e rows ] || cat rows >/tmp/rows || exit 2
[ ! -e state ] || cat state || exit 2
ls -lR >/tmp/list || exit 2
echo "after the cut" >after && sync after && sync . || exit 3
