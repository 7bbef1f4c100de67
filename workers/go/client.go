package worker

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// client is one connection.
type client struct {
	credentials.AuthInfo
	net.Conn
	shares [kinds]share
}

// guarded are the credentials of a server whose calls know their connection.
type guarded struct {
	credentials.TransportCredentials
}

func (g guarded) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	made := &client{AuthInfo: info, Conn: conn}
	return made, made, nil
}

func (g guarded) Clone() credentials.TransportCredentials {
	return guarded{g.TransportCredentials.Clone()}
}

// clientIn returns the connection of a call; a new one in a test without a connection.
func clientIn(ctx context.Context) *client {
	if found, ok := peer.FromContext(ctx); ok {
		if of, ok := found.AuthInfo.(*client); ok {
			return of
		}
	}
	return &client{}
}
