// Goroutines that meet by channels and wait for timers, beside one that never yields.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

func main() {
	jobs, sums := make(chan int), make(chan int, 8)
	var workers sync.WaitGroup
	for worker := 0; worker < cap(sums); worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			sum := 0
			for job := range jobs {
				sum += job
			}
			sums <- sum
		}()
	}
	for job := 1; job <= 10000; job++ {
		jobs <- job
	}
	close(jobs)
	workers.Wait()
	total := 0
	for worker := 0; worker < cap(sums); worker++ {
		total += <-sums
	}
	begin := time.Now()
	ticker, ticks, late := time.NewTicker(20*time.Millisecond), 0, time.After(10*time.Second)
	for ticks < 10 {
		select {
		case <-ticker.C:
			ticks++
		case <-late:
			fmt.Println("late after", ticks)
			return
		}
	}
	whole := time.Since(begin) >= 200*time.Millisecond
	// Only a signal stops it for the collector.
	go func() {
		for {
		}
	}()
	time.Sleep(50 * time.Millisecond)
	runtime.GC()
	fmt.Println("sum", total, "ticks", ticks, whole)
}
