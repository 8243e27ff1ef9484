"""Wire protocol: messages between parties, and their transport. Independent of trees and privacy."""
