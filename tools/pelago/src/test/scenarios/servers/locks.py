# Threads that meet by Python's locks, conditions, events, barriers and queues; one line is compared.
import queue, threading, time

lock, total = threading.Lock(), 0
barrier, turn, place = threading.Barrier(8), threading.Condition(), 0
jobs, sums, local = queue.Queue(4), queue.SimpleQueue(), threading.local()


def work(number):
    global total, place
    local.sum = 0
    barrier.wait(60)
    for _ in range(1000):
        with lock:
            total += 1
    with turn:
        turn.wait_for(lambda: place == number, 60)
        place += 1
        turn.notify_all()
    while (job := jobs.get()) is not None:
        local.sum += job
    sums.put(local.sum)


threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for job in range(1000):
    jobs.put(job)
for _ in threads:
    jobs.put(None)
for thread in threads:
    thread.join(60)
called, start = threading.Event(), time.monotonic()
early = called.wait(0.01)
threading.Timer(0.2, called.set).start()
rang = called.wait(60)
semaphore = threading.Semaphore(0)
late = semaphore.acquire(timeout=0.05)
whole = time.monotonic() - start >= 0.2
print(total, place, sum(sums.get() for _ in threads), early, rang, late, whole, threading.active_count())
