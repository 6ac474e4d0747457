# More than the volume's server has memory for: large files that are written side by side and read
# in order, and many names.
cd /data
large() { i=0; while [ $i -lt 32 ]; do i=$((i + 1)); cat seed; done >$1; }
large one & large two & mkdir names
i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); : >names/$i; done
wait
echo "names $(ls names | wc -l);"
echo '-- begin --'; md5sum one two; echo '-- end --'
cmp one two && echo alike
