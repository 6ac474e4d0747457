// Serves /served by HTTP, and waits meanwhile for as many pipes in which nothing comes as the first
// argument says.
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"
)

func wait(reads, writes *os.File) {
	_, err := reads.Read(make([]byte, 1))
	log.Fatal("something came: ", err, writes)
}

func main() {
	if len(os.Args) > 1 {
		idle, err := strconv.Atoi(os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		for ; idle > 0; idle-- {
			reads, writes, err := os.Pipe()
			if err != nil {
				log.Fatal(err)
			}
			go wait(reads, writes)
		}
	}
	log.Fatal(http.ListenAndServe(":8080", http.FileServer(http.Dir("/served"))))
}
