// Command routes says where keys are: routes MASTER reads one a line, and prints its shard, or the
// SQLSTATE of why there is none, `lost` if the master could not be reached.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	"shardmaster"
	"shardmaster/pgx4"
)

func main() {
	ctx := context.Background()
	config, err := pgx4.ParseConfig(os.Args[1])
	if err != nil {
		panic(err)
	}
	router, err := shardmaster.New(ctx, pgx4.Connect(config), "default")
	if err != nil {
		panic(err)
	}
	defer router.Close()
	for keys := bufio.NewScanner(os.Stdin); keys.Scan(); {
		switch route, err := router.Route(ctx, keys.Text()); {
		case err == nil:
			fmt.Println(route.ShardKey)
		case shardmaster.SQLState(err) == "":
			fmt.Println("lost")
		default:
			fmt.Println(shardmaster.SQLState(err))
		}
	}
}
