// Serves /served by HTTP, and waits meanwhile for as many pipes as the first argument says, and
// event counters as the second does, in which nothing comes.
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"
	"syscall"
)

func wait(reads, writes *os.File) {
	_, err := reads.Read(make([]byte, 8))
	log.Fatal("something came: ", err, writes)
}

func number(place int) int {
	if len(os.Args) <= place {
		return 0
	}
	number, err := strconv.Atoi(os.Args[place])
	if err != nil {
		log.Fatal(err)
	}
	return number
}

func main() {
	for idle := number(1); idle > 0; idle-- {
		reads, writes, err := os.Pipe()
		if err != nil {
			log.Fatal(err)
		}
		go wait(reads, writes)
	}
	for idle := number(2); idle > 0; idle-- {
		counter, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if errno != 0 {
			log.Fatal(errno)
		}
		go wait(os.NewFile(counter, "counter"), nil)
	}
	log.Fatal(http.ListenAndServe(":8080", http.FileServer(http.Dir("/served"))))
}
